// One spelling per operation: strips encoding suffixes and maps the names that
// later generations gave to existing operations.
#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "tests/softgpu/interp/decode.h"

namespace softgpu {
namespace {

using Rename = std::pair<std::string_view, std::string_view>;

// Whole names, later spelling first.
constexpr Rename kWhole[] = {
    // Scalar.
    {"S_CTZ_I32_B32", "S_FF1_I32_B32"},
    {"S_CTZ_I32_B64", "S_FF1_I32_B64"},
    {"S_CLZ_I32_U32", "S_FLBIT_I32_B32"},
    {"S_CLZ_I32_U64", "S_FLBIT_I32_B64"},
    {"S_CLS_I32", "S_FLBIT_I32"},
    {"S_CLS_I32_I64", "S_FLBIT_I32_I64"},
    {"S_AND_NOT1_B32", "S_ANDN2_B32"},
    {"S_AND_NOT1_B64", "S_ANDN2_B64"},
    {"S_OR_NOT1_B32", "S_ORN2_B32"},
    {"S_OR_NOT1_B64", "S_ORN2_B64"},
    {"S_AND_NOT0_SAVEEXEC_B32", "S_ANDN1_SAVEEXEC_B32"},
    {"S_AND_NOT0_SAVEEXEC_B64", "S_ANDN1_SAVEEXEC_B64"},
    {"S_AND_NOT1_SAVEEXEC_B32", "S_ANDN2_SAVEEXEC_B32"},
    {"S_AND_NOT1_SAVEEXEC_B64", "S_ANDN2_SAVEEXEC_B64"},
    {"S_OR_NOT0_SAVEEXEC_B32", "S_ORN1_SAVEEXEC_B32"},
    {"S_OR_NOT0_SAVEEXEC_B64", "S_ORN1_SAVEEXEC_B64"},
    {"S_OR_NOT1_SAVEEXEC_B32", "S_ORN2_SAVEEXEC_B32"},
    {"S_OR_NOT1_SAVEEXEC_B64", "S_ORN2_SAVEEXEC_B64"},
    {"S_AND_NOT0_WREXEC_B32", "S_ANDN1_WREXEC_B32"},
    {"S_AND_NOT0_WREXEC_B64", "S_ANDN1_WREXEC_B64"},
    {"S_AND_NOT1_WREXEC_B32", "S_ANDN2_WREXEC_B32"},
    {"S_AND_NOT1_WREXEC_B64", "S_ANDN2_WREXEC_B64"},
    {"S_ADD_CO_U32", "S_ADD_U32"},
    {"S_ADD_CO_I32", "S_ADD_I32"},
    {"S_SUB_CO_U32", "S_SUB_U32"},
    {"S_SUB_CO_I32", "S_SUB_I32"},
    {"S_ADD_CO_CI_U32", "S_ADDC_U32"},
    {"S_SUB_CO_CI_U32", "S_SUBB_U32"},
    {"S_ADDK_CO_I32", "S_ADDK_I32"},
    {"S_GET_PC_I64", "S_GETPC_B64"},
    {"S_SET_PC_I64", "S_SETPC_B64"},
    {"S_SWAP_PC_I64", "S_SWAPPC_B64"},
    {"S_CALL_I64", "S_CALL_B64"},
    {"S_ADD_NC_U64", "S_ADD_U64"},
    {"S_SUB_NC_U64", "S_SUB_U64"},
    {"S_MOVRELSD_2_B32", "S_MOVRELSD_2_B32"},
    // Vector.
    {"V_ADD_NC_U32", "V_ADD_U32"},
    {"V_SUB_NC_U32", "V_SUB_U32"},
    {"V_SUBREV_NC_U32", "V_SUBREV_U32"},
    {"V_ADD_NC_U16", "V_ADD_U16"},
    {"V_SUB_NC_U16", "V_SUB_U16"},
    {"V_ADD_NC_I16", "V_ADD_I16"},
    {"V_SUB_NC_I16", "V_SUB_I16"},
    {"V_ADD_NC_I32", "V_ADD_I32"},
    {"V_SUB_NC_I32", "V_SUB_I32"},
    {"V_ADD_CO_CI_U32", "V_ADDC_CO_U32"},
    {"V_SUB_CO_CI_U32", "V_SUBB_CO_U32"},
    {"V_SUBREV_CO_CI_U32", "V_SUBBREV_CO_U32"},
    {"V_CVT_PK_RTZ_F16_F32", "V_CVT_PKRTZ_F16_F32"},
    {"V_CVT_PK_NORM_I16_F32", "V_CVT_PKNORM_I16_F32"},
    {"V_CVT_PK_NORM_U16_F32", "V_CVT_PKNORM_U16_F32"},
    {"V_CVT_PK_NORM_I16_F16", "V_CVT_PKNORM_I16_F16"},
    {"V_CVT_PK_NORM_U16_F16", "V_CVT_PKNORM_U16_F16"},
    {"V_CVT_FLOOR_I32_F32", "V_CVT_FLR_I32_F32"},
    {"V_CVT_NEAREST_I32_F32", "V_CVT_RPI_I32_F32"},
    {"V_CLZ_I32_U32", "V_FFBH_U32"},
    {"V_CTZ_I32_B32", "V_FFBL_B32"},
    {"V_CLS_I32", "V_FFBH_I32"},
    {"V_MUL_DX9_ZERO_F32", "V_MUL_LEGACY_F32"},
    {"V_FMA_DX9_ZERO_F32", "V_FMA_LEGACY_F32"},
    {"V_FMAC_DX9_ZERO_F32", "V_FMAC_LEGACY_F32"},
    {"V_MAD_CO_U64_U32", "V_MAD_U64_U32"},
    {"V_MAD_CO_I64_I32", "V_MAD_I64_I32"},
    {"V_AND_OR_B32", "V_AND_OR_B32"},
    {"V_MIN_NUM_F32", "V_MIN_F32"},
    {"V_MAX_NUM_F32", "V_MAX_F32"},
    {"V_MIN_NUM_F16", "V_MIN_F16"},
    {"V_MAX_NUM_F16", "V_MAX_F16"},
    {"V_MIN_NUM_F64", "V_MIN_F64"},
    {"V_MAX_NUM_F64", "V_MAX_F64"},
    {"V_MIN3_NUM_F32", "V_MIN3_F32"},
    {"V_MAX3_NUM_F32", "V_MAX3_F32"},
    {"V_MED3_NUM_F32", "V_MED3_F32"},
    {"V_MIN3_NUM_F16", "V_MIN3_F16"},
    {"V_MAX3_NUM_F16", "V_MAX3_F16"},
    {"V_MED3_NUM_F16", "V_MED3_F16"},
    {"V_MINMAX_NUM_F32", "V_MINMAX_F32"},
    {"V_MAXMIN_NUM_F32", "V_MAXMIN_F32"},
    {"V_MINMAX_NUM_F16", "V_MINMAX_F16"},
    {"V_MAXMIN_NUM_F16", "V_MAXMIN_F16"},
    {"V_PK_MIN_NUM_F16", "V_PK_MIN_F16"},
    {"V_PK_MAX_NUM_F16", "V_PK_MAX_F16"},
    // LDS.
    {"DS_LOAD_B32", "DS_READ_B32"},
    {"DS_LOAD_B64", "DS_READ_B64"},
    {"DS_LOAD_B96", "DS_READ_B96"},
    {"DS_LOAD_B128", "DS_READ_B128"},
    {"DS_LOAD_U8", "DS_READ_U8"},
    {"DS_LOAD_I8", "DS_READ_I8"},
    {"DS_LOAD_U16", "DS_READ_U16"},
    {"DS_LOAD_I16", "DS_READ_I16"},
    {"DS_LOAD_U8_D16", "DS_READ_U8_D16"},
    {"DS_LOAD_U8_D16_HI", "DS_READ_U8_D16_HI"},
    {"DS_LOAD_I8_D16", "DS_READ_I8_D16"},
    {"DS_LOAD_I8_D16_HI", "DS_READ_I8_D16_HI"},
    {"DS_LOAD_U16_D16", "DS_READ_U16_D16"},
    {"DS_LOAD_U16_D16_HI", "DS_READ_U16_D16_HI"},
    {"DS_LOAD_2ADDR_B32", "DS_READ2_B32"},
    {"DS_LOAD_2ADDR_B64", "DS_READ2_B64"},
    {"DS_LOAD_2ADDR_STRIDE64_B32", "DS_READ2ST64_B32"},
    {"DS_LOAD_2ADDR_STRIDE64_B64", "DS_READ2ST64_B64"},
    {"DS_LOAD_ADDTID_B32", "DS_READ_ADDTID_B32"},
    {"DS_STORE_B8", "DS_WRITE_B8"},
    {"DS_STORE_B16", "DS_WRITE_B16"},
    {"DS_STORE_B32", "DS_WRITE_B32"},
    {"DS_STORE_B64", "DS_WRITE_B64"},
    {"DS_STORE_B96", "DS_WRITE_B96"},
    {"DS_STORE_B128", "DS_WRITE_B128"},
    {"DS_STORE_B8_D16_HI", "DS_WRITE_B8_D16_HI"},
    {"DS_STORE_B16_D16_HI", "DS_WRITE_B16_D16_HI"},
    {"DS_STORE_2ADDR_B32", "DS_WRITE2_B32"},
    {"DS_STORE_2ADDR_B64", "DS_WRITE2_B64"},
    {"DS_STORE_2ADDR_STRIDE64_B32", "DS_WRITE2ST64_B32"},
    {"DS_STORE_2ADDR_STRIDE64_B64", "DS_WRITE2ST64_B64"},
    {"DS_STORE_ADDTID_B32", "DS_WRITE_ADDTID_B32"},
    {"DS_STOREXCHG_RTN_B32", "DS_WRXCHG_RTN_B32"},
    {"DS_STOREXCHG_RTN_B64", "DS_WRXCHG_RTN_B64"},
    {"DS_STOREXCHG_2ADDR_RTN_B32", "DS_WRXCHG2_RTN_B32"},
    {"DS_STOREXCHG_2ADDR_RTN_B64", "DS_WRXCHG2_RTN_B64"},
    {"DS_STOREXCHG_2ADDR_STRIDE64_RTN_B32", "DS_WRXCHG2ST64_RTN_B32"},
    {"DS_STOREXCHG_2ADDR_STRIDE64_RTN_B64", "DS_WRXCHG2ST64_RTN_B64"},
    {"DS_MIN_NUM_F32", "DS_MIN_F32"},
    {"DS_MAX_NUM_F32", "DS_MAX_F32"},
    {"DS_MIN_NUM_F64", "DS_MIN_F64"},
    {"DS_MAX_NUM_F64", "DS_MAX_F64"},
    {"DS_MIN_NUM_RTN_F32", "DS_MIN_RTN_F32"},
    {"DS_MAX_NUM_RTN_F32", "DS_MAX_RTN_F32"},
    {"DS_MIN_NUM_RTN_F64", "DS_MIN_RTN_F64"},
    {"DS_MAX_NUM_RTN_F64", "DS_MAX_RTN_F64"},
};

// Tails of SMEM, flat, global, scratch and buffer names.
constexpr Rename kMemoryTail[] = {
    {"LOAD_B32", "LOAD_DWORD"},
    {"LOAD_B64", "LOAD_DWORDX2"},
    {"LOAD_B96", "LOAD_DWORDX3"},
    {"LOAD_B128", "LOAD_DWORDX4"},
    {"LOAD_B256", "LOAD_DWORDX8"},
    {"LOAD_B512", "LOAD_DWORDX16"},
    {"LOAD_U8", "LOAD_UBYTE"},
    {"LOAD_I8", "LOAD_SBYTE"},
    {"LOAD_U16", "LOAD_USHORT"},
    {"LOAD_I16", "LOAD_SSHORT"},
    {"LOAD_D16_U8", "LOAD_UBYTE_D16"},
    {"LOAD_D16_HI_U8", "LOAD_UBYTE_D16_HI"},
    {"LOAD_D16_I8", "LOAD_SBYTE_D16"},
    {"LOAD_D16_HI_I8", "LOAD_SBYTE_D16_HI"},
    {"LOAD_D16_B16", "LOAD_SHORT_D16"},
    {"LOAD_D16_HI_B16", "LOAD_SHORT_D16_HI"},
    {"STORE_B8", "STORE_BYTE"},
    {"STORE_B16", "STORE_SHORT"},
    {"STORE_B32", "STORE_DWORD"},
    {"STORE_B64", "STORE_DWORDX2"},
    {"STORE_B96", "STORE_DWORDX3"},
    {"STORE_B128", "STORE_DWORDX4"},
    {"STORE_D16_HI_B8", "STORE_BYTE_D16_HI"},
    {"STORE_D16_HI_B16", "STORE_SHORT_D16_HI"},
    {"ATOMIC_SWAP_B32", "ATOMIC_SWAP"},
    {"ATOMIC_SWAP_B64", "ATOMIC_SWAP_X2"},
    {"ATOMIC_CMPSWAP_B32", "ATOMIC_CMPSWAP"},
    {"ATOMIC_CMPSWAP_B64", "ATOMIC_CMPSWAP_X2"},
    {"ATOMIC_ADD_U32", "ATOMIC_ADD"},
    {"ATOMIC_ADD_U64", "ATOMIC_ADD_X2"},
    {"ATOMIC_SUB_U32", "ATOMIC_SUB"},
    {"ATOMIC_SUB_U64", "ATOMIC_SUB_X2"},
    {"ATOMIC_MIN_I32", "ATOMIC_SMIN"},
    {"ATOMIC_MIN_I64", "ATOMIC_SMIN_X2"},
    {"ATOMIC_MIN_U32", "ATOMIC_UMIN"},
    {"ATOMIC_MIN_U64", "ATOMIC_UMIN_X2"},
    {"ATOMIC_MAX_I32", "ATOMIC_SMAX"},
    {"ATOMIC_MAX_I64", "ATOMIC_SMAX_X2"},
    {"ATOMIC_MAX_U32", "ATOMIC_UMAX"},
    {"ATOMIC_MAX_U64", "ATOMIC_UMAX_X2"},
    {"ATOMIC_AND_B32", "ATOMIC_AND"},
    {"ATOMIC_AND_B64", "ATOMIC_AND_X2"},
    {"ATOMIC_OR_B32", "ATOMIC_OR"},
    {"ATOMIC_OR_B64", "ATOMIC_OR_X2"},
    {"ATOMIC_XOR_B32", "ATOMIC_XOR"},
    {"ATOMIC_XOR_B64", "ATOMIC_XOR_X2"},
    {"ATOMIC_INC_U32", "ATOMIC_INC"},
    {"ATOMIC_INC_U64", "ATOMIC_INC_X2"},
    {"ATOMIC_DEC_U32", "ATOMIC_DEC"},
    {"ATOMIC_DEC_U64", "ATOMIC_DEC_X2"},
    {"ATOMIC_CMPSWAP_F32", "ATOMIC_FCMPSWAP"},
    {"ATOMIC_FMIN", "ATOMIC_MIN_F32"},
    {"ATOMIC_FMAX", "ATOMIC_MAX_F32"},
    {"ATOMIC_FMIN_X2", "ATOMIC_MIN_F64"},
    {"ATOMIC_FMAX_X2", "ATOMIC_MAX_F64"},
    {"ATOMIC_MIN_NUM_F32", "ATOMIC_MIN_F32"},
    {"ATOMIC_MAX_NUM_F32", "ATOMIC_MAX_F32"},
};

bool EatSuffix(std::string& name, std::string_view suffix) {
  if (!std::string_view(name).ends_with(suffix)) return false;
  name.resize(name.size() - suffix.size());
  return true;
}

// gfx940 spells "32x32x1_2b_f32" what gfx908 spells "32x32x1f32".
std::string CanonicalMfma(std::string name) {
  constexpr std::string_view kPrefix = "V_MFMA_";
  for (std::string_view blocks : {"_2B_", "_4B_", "_16B_"}) {
    const size_t at = name.find(blocks);
    if (at != std::string::npos) {
      name.erase(at, blocks.size());
      return EatSuffix(name, "BF16") ? name + "BF16_1K" : name;
    }
  }
  // "V_MFMA_F32_16X16X16_F16": drop the underscore before a single type.
  const size_t dims = name.find('X', kPrefix.size());
  const size_t at = dims == std::string::npos ? dims : name.find('_', dims);
  if (at == std::string::npos) return name;
  const std::string type = name.substr(at + 1);
  if (type == "1K" || type.find('_') != std::string::npos) return name;
  name.erase(at, 1);
  if (type == "BF16") name += "_1K";
  return name;
}

const std::unordered_map<std::string_view, std::string_view>& WholeNames() {
  static const auto& map = *new std::unordered_map<std::string_view, std::string_view>(
      std::begin(kWhole), std::end(kWhole));
  return map;
}

}  // namespace

std::string CanonicalName(const std::string& mnemonic) {
  std::string name;
  for (char c : mnemonic) name += static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  for (std::string_view suffix : {"_DPP", "_DPP8", "_SDWA", "_E32", "_E64"}) {
    EatSuffix(name, suffix);
  }
  EatSuffix(name, "_E64");  // "_e64_dpp"
  if (name.starts_with("V_DUAL_")) name = "V_" + name.substr(7);
  if (name.starts_with("V_MFMA_")) return CanonicalMfma(name);
  if (const auto it = WholeNames().find(name); it != WholeNames().end()) {
    return std::string(it->second);
  }
  for (std::string_view space : {"GLOBAL_", "FLAT_", "SCRATCH_", "BUFFER_", "S_BUFFER_", "S_"}) {
    if (!name.starts_with(space)) continue;
    const std::string_view tail = std::string_view(name).substr(space.size());
    for (const auto& [later, canonical] : kMemoryTail) {
      if (tail == later) return std::string(space) + std::string(canonical);
    }
  }
  return name;
}

}  // namespace softgpu
